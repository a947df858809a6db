from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["shop.example.org"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="replace this one",
    # Offramp sets this field, and removes what clients say in it.
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
)


def index(request):
    client = request.META["HTTP_X_FORWARDED_FOR"]
    text = f"{request.build_absolute_uri()} for {client}, secure: {request.is_secure()}\n"
    return HttpResponse(text, content_type="text/plain")


urlpatterns = [path("", index)]
application = get_wsgi_application()
